"""The tests, and the programs that they start: all of them wait longer for a server than a service would."""

from tests.patience import be_patient

be_patient()
