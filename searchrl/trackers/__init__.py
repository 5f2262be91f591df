"""Trackers: where metrics go besides the run folder's own metrics.jsonl. None by default.

One module per tracker, imported when a run asks for it by name in `log.trackers`. The contract is
`contracts.Tracker`; `searchrl/trackers/feed.py` makes them, feeds them and closes them for `train`.
"""
