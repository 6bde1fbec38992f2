"""Production: what runs where, and the files that say so to Docker Compose and Kubernetes.

`python -m tools.deploy` writes them from `layout`; servers' settings and users come from
`ephemera server-config` and `ephemera acl` themselves, so a changed catalogue changes them,
and a test fails while a file is old. No
secret is in any of them: they name who keeps it.
"""
