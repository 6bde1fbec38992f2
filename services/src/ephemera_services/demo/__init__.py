"""What `ephemera demo` runs: servers, five services, their workers and the console, with traffic, or on tour.

Read it in the order in which it happens: `given` (which servers the user named), `servers` (those, or
embedded ones), `cast` (which processes there are, and what each is told), `processes` (started, watched,
stopped), `traffic` (who visits), `screen` (what is shown), `tour` (what is tried), and `running`, which puts
it together.
"""
