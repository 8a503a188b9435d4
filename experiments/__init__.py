"""The paper's experiments: every figure and table from one command, `python -m experiments.run`.

A figure is a list of pieces, one method on one problem with a group of seeds (`pieces.py`). Running a piece
appends one JSON line per problem, method, seed and round to `results/<figure>.jsonl` (`lines.py`). Claims
(`claims.py`) and pictures are functions of these lines, and `report.py` writes both down.
"""
