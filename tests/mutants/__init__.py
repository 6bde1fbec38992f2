"""Mutation testing: one small change of the code at a time, and whether the tests that concern it notice.

`python -m tests.mutants` (`make mutants`) records once which tests execute which lines and scripts, draws
mutants of Python and Lua files by a seed, runs each in a copy of the tree with the tests that execute the
changed line, and writes docs/proof/mutants.md. It changes nothing in the tree itself. What it found out is
kept in build/mutants: a stopped run resumes, and survivors are judged again when tests were added.

Why a runner of our own: what is atomic is in Lua, which the maintained tools (mutmut, cosmic-ray) do not
mutate, and our tests start servers and services as processes, which find the mutant only in a copied tree on
their path. What is left of such a tool after that is the list of changes, in `mutations`.
"""
