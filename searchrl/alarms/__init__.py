"""Alarms: what watches the metrics of a run and says in words when something is wrong.

The built-in ones are in a file each by what they look at. The contract is `contracts.Alarm`.
"""
