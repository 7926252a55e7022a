"""The public test kit: what a test or a benchmark of agents needs in the place of the world.

Read `model_script` (pure: what a scripted endpoint answers, and what it bills),
then `model_server` (a model endpoint on the loopback, in process or as its own).
`checkpoint_fuzz` does one fault at each checkpoint of a small scenario, and
`tree_invariants` says what must hold after each.
"""
