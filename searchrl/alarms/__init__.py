"""Alarms: what watches the metrics of a run and says in words when something is wrong.

The built-in ones by what they look at: `update` (the optimiser), `collapse` (the policy), `reward`,
`episode`. `curves` has the arithmetic that they share. `watch` makes the alarms of a run, asks them
after every step and remembers which have sounded. The contract is `contracts.Alarm`.
"""
