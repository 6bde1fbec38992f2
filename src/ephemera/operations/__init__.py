"""Operations: what the declarations in a catalogue give to the people who run a service.

Each subpackage is a closed box; import from the package, never from a module inside it.

- `documentation`: tables of a catalogue's keys, as Markdown or JSON.
- `survey`: count and sample all keys of a server; the basis of the next two.
- `audit`: compare a server with the catalogues of its users.
- `infer`: propose a catalogue for a server that has none.
- `libraries`: which other library wrote a key, its role and its hazards.
- `change`: what a changed catalogue means for a server; orphaned keys; where to begin.
- `health`: check servers (`ephemera doctor`, `/healthz`) and estimate their capacity.
- `configuration`: access rules, server configuration, server marks.
- `inspect`: the state of locks, events, limits, sessions, jobs, the planner and write-behind.
- `metrics`: Prometheus metrics, Grafana dashboards, OpenTelemetry spans.
- `formatting`: keys, sizes and durations as people read them.
"""
