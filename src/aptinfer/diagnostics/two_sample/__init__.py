"""How far apart are two sets of draws, such as a posterior's and the truth's?

`c2st` is the accuracy of a classifier between them, `mmd2` the squared maximum mean discrepancy and
`sliced_wasserstein` a distance in the parameters' own units. `c2st_published` is the slow original of
`c2st`, on which published tables rest.
"""

from aptinfer.diagnostics.two_sample.classifier import c2st
from aptinfer.diagnostics.two_sample.mmd import mmd2
from aptinfer.diagnostics.two_sample.published import c2st_published
from aptinfer.diagnostics.two_sample.wasserstein import sliced_wasserstein

__all__ = ["c2st", "c2st_published", "mmd2", "sliced_wasserstein"]
