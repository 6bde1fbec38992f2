"""Administration of the league: live control, fixtures, clubs, people, and the history of all changes.

A change of data runs through an `Edit`, which records what each row was before and after. From those records
follow the pages to invalidate (`affected_pages`) and the undo of the change (`edits`), so a new kind of
change needs neither of its own.
"""
