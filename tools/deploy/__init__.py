"""Generates the Docker Compose and Kubernetes files of the five services in production.

`python -m tools.deploy` writes them from `layout`. Server settings and users come from `ephemera
server-config` and `ephemera acl`, so the files follow the catalogues, and a test fails while a file is
outdated. The files contain no secrets, only references to them.
"""
