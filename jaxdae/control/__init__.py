"""Motors, end effectors and feedback laws for constrained systems."""

from jaxdae.control.computed_torque import ComputedTorque
from jaxdae.control.goals import FunctionGoal, Goal, GoalRows, InputTarget, goal_rows
from jaxdae.control.gravity import GravityCompensation, static_inputs
from jaxdae.control.inputs import InputResponse, input_matrix, input_response
from jaxdae.control.joint_outputs import BodyFrame, JointCoordinate
from jaxdae.control.law import Law, MemoryLaw, Saturated, Sum
from jaxdae.control.linear_model import LinearModel, linearize_equilibrium
from jaxdae.control.operational_space import OperationalSpace, TaskDynamics, task_dynamics
from jaxdae.control.outputs import BodyPoint, Coordinates, OutputMotion, output_motion
from jaxdae.control.pid import PD, PID
from jaxdae.control.regulator import (
    LinearFeedback,
    TrajectoryFeedback,
    linear_quadratic_regulator,
    trajectory_regulator,
)
from jaxdae.control.replay import HeldInputs
from jaxdae.control.sampled import Sampled
from jaxdae.control.state_space_matrices import StateSpace, frequency_response, state_space
from jaxdae.control.velocity_stepping import (
    ConstraintOrder,
    Coupling,
    GoalGroup,
    SteppingInfo,
    VelocityStepping,
    spring_and_damper,
)
from jaxdae.control.vibration_modes import Modes, mode_motion, modes
from jaxdae.control.virtual_work import VirtualWork, motor_efforts
from jaxdae.control.with_goals import WithGoals

__all__ = [
    "PD",
    "PID",
    "BodyFrame",
    "BodyPoint",
    "ComputedTorque",
    "ConstraintOrder",
    "Coordinates",
    "Coupling",
    "FunctionGoal",
    "Goal",
    "GoalGroup",
    "GoalRows",
    "GravityCompensation",
    "HeldInputs",
    "InputResponse",
    "InputTarget",
    "JointCoordinate",
    "Law",
    "LinearFeedback",
    "LinearModel",
    "MemoryLaw",
    "Modes",
    "OperationalSpace",
    "OutputMotion",
    "Sampled",
    "Saturated",
    "StateSpace",
    "SteppingInfo",
    "Sum",
    "TaskDynamics",
    "TrajectoryFeedback",
    "VelocityStepping",
    "VirtualWork",
    "WithGoals",
    "frequency_response",
    "goal_rows",
    "input_matrix",
    "input_response",
    "linear_quadratic_regulator",
    "linearize_equilibrium",
    "mode_motion",
    "modes",
    "motor_efforts",
    "output_motion",
    "spring_and_damper",
    "state_space",
    "static_inputs",
    "task_dynamics",
    "trajectory_regulator",
]
