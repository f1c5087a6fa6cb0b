"""Reinforcement-learning environments: pure-function tasks, episodes, randomization, and library adapters."""

from jaxdae.envs.adapters import to_brax, to_gymnasium, to_gymnax
from jaxdae.envs.environment import AutoReset, Environment, EnvState, Step, with_params
from jaxdae.envs.randomize import Factor, Range, StartPool, sample_params
from jaxdae.envs.task import Limits, Start, Task, never
from jaxdae.envs.tasks.car import Pedals, parking
from jaxdae.envs.tasks.cart import cart_pole
from jaxdae.envs.tasks.cassie import CassieOnBlades, cassie_on_blades, cassie_stand
from jaxdae.envs.tasks.delta import delta_pick
from jaxdae.envs.tasks.five_bar import five_bar_reach
from jaxdae.envs.tasks.rover import rover_drive

__all__ = [
    "AutoReset",
    "CassieOnBlades",
    "EnvState",
    "Environment",
    "Factor",
    "Limits",
    "Pedals",
    "Range",
    "Start",
    "StartPool",
    "Step",
    "Task",
    "cart_pole",
    "cassie_on_blades",
    "cassie_stand",
    "delta_pick",
    "five_bar_reach",
    "never",
    "parking",
    "rover_drive",
    "sample_params",
    "to_brax",
    "to_gymnasium",
    "to_gymnax",
    "with_params",
]
