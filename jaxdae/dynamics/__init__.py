"""Dynamics at one state: accelerations, stabilization, initialization, diagnosis, choice of the solver."""
