"""Whether processes of the demonstration give back what traffic made them take: memory, files, connections.

`make soak` starts five services with their workers, lets them rest, sends mixed traffic for ten minutes,
stops it, and samples every process throughout: resident memory with that of its children, file descriptors,
SQL connections and Redis clients. Connections bear the name of their process (`PGAPPNAME`, `client_name`).
It prints the sums as it goes, then a line for each resource of each process; `--csv FILE` keeps all readings.

*The rule.* The plateau is the median of the quarter of the traffic that follows the warm-up (its first
quarter), when everything that is opened at the first use is open. After the traffic a process has up to a
minute in which at least one reading must be within the bounds of every resource:

- memory: at most the plateau, a tenth of it and 16 MB more;
- file descriptors and Redis clients: at most the plateau and 4 more;
- SQL connections: at most 3 more than before the traffic, as idle ones are closed after 30 seconds.
"""
