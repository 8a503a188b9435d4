"""Where a round's parameters come from.

A choice, such as `Truncated()`, is what the user gives as `proposal=`. After each round it makes a proposal
from that round's posterior, and the proposal draws.
"""

from aptinfer.proposals.active import Active as Active
from aptinfer.proposals.choice import ProposalChoice as ProposalChoice
from aptinfer.proposals.choice import as_choice as as_choice
from aptinfer.proposals.defensive import Defensive as Defensive
from aptinfer.proposals.posterior import FromPosterior as FromPosterior
from aptinfer.proposals.posterior import LastPosterior as LastPosterior
from aptinfer.proposals.prior import FromPrior as FromPrior
from aptinfer.proposals.tempered import Tempered as Tempered
from aptinfer.proposals.truncated import Truncated as Truncated
