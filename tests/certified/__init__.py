"""`make certify`: the adapters pass the test suites of the libraries that they plug into.

*Suites.* Each file of `suites/` declares one (`SUITE`) or several (`SUITES`). A suite comes from the source
distribution of its library, pinned, from whatever package index pip is configured for. It is unpacked below
`build/certified/`, never copied into this repository.

*Stock and ours.* A suite runs twice with the same arguments, on servers of its own: as it is, and with the
pytest plugin that makes its tests use ours (`plugins/`). Outcomes are compared test by test. A test that
passes stock and not with ours is a defect, unless the suite declares it as a difference, with a reason; a
declared difference that no longer differs fails too. Others' tests depend on timing here and there, so those
that differ run once more on both sides, alone; the page says how many did.

*Environment.* What the tests of a suite need besides this project's packages is in a virtual environment for
those requirements; it sees the packages of the one that runs `make certify`, so it takes seconds.

*Records.* What came of a suite is kept in `recorded/<suite>.json`, and docs/proof/certified.md is rendered
from all of them. The record lists the tests that do not pass stock. So the short version, for CI, runs ours
alone, on the part of each suite that its declaration names: every test passes or is skipped there, unless the
record or a declared difference names it. That halves its time, and an unchanged stock library has nothing new
to say.
"""
