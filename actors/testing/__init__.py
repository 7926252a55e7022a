"""The public test kit: what a test or a benchmark of agents needs in the place of the world.

Read `model_script` (pure: what a scripted endpoint answers, and what it bills),
then `model_server` (a model endpoint on the loopback, in process or as its own).
`checkpoint_fuzz` does one fault at each checkpoint of a small scenario, and
`tree_invariants` says what must hold after each. `trace_compare` tells whether two
stored runs did the same.
`faulty_store` is a store in a file whose disk is full, locked,
unreadable or damaged when it is told to be.
`resume_bench` begins and resumes one run again and again, each time as a process of its own that ends where it
is told to: by a `dying_store`, with a `goal_model` that survives it.
`crash_points` kills a run at each place where that may matter, goes on with it, and compares:
read `crash_stage` (what a scenario is made of), `crash_scenarios`, then `crash_process`
(one forked process), `crash_account` (what is compared) and `crash_points` (all of it).
"""
