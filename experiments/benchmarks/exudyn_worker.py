"""Exudyn in a process of its own, for `work_precision_peers.py`.

Where Newton's iteration fails Exudyn throws a C++ exception, which ends a process that has JAX in it. So this
script imports neither JAX nor jaxdae. It reads JSON, one line a message, from stdin and answers on stdout:
first the model, then runs.

    {"end": s, "gravity": m/s^2, "bodies": [{"name", "mass", "inertia", "center", "speed", "rate", "torque"}],
    "hinges": [[a, b, point]],
     "spring": null or {"anchor", "body", "point", "stiffness", "rest"}}                                    -> {"ready": true}
    {"solver": "GeneralizedAlpha", "steps": 1000}                        -> {"coordinates": [x, y, turn, ...]} or {"failed": message}

A model without bodies is the pendulum A01: a point mass at (-1, 0) on a rod to the origin.
"""

import json
import os
import sys


def build(model: dict):
    """Return Exudyn's assembled system."""
    import exudyn as exu
    from exudyn import itemInterface as items

    mbs = exu.SystemContainer().AddSystem()
    ground = mbs.AddObject(items.ObjectGround(referencePosition=[0, 0, 0]))
    if not model["bodies"]:
        node = mbs.AddNode(items.NodePoint2D(referenceCoordinates=[-1, 0]))
        mbs.AddObject(items.MassPoint2D(physicsMass=1.0, nodeNumber=node))
        marker = mbs.AddMarker(items.MarkerNodePosition(nodeNumber=node))
        origin = mbs.AddMarker(items.MarkerBodyPosition(bodyNumber=ground, localPosition=[0, 0, 0]))
        mbs.AddObject(items.ObjectConnectorDistance(markerNumbers=[origin, marker], distance=1.0))
        mbs.AddLoad(items.Force(markerNumber=marker, loadVector=[0, -model["gravity"], 0]))
        mbs.Assemble()
        return mbs
    bodies = {"ground": (ground, (0.0, 0.0))}
    for body in model["bodies"]:
        start = {
            "referenceCoordinates": [*body["center"], 0.0],
            "initialVelocities": [*body["speed"], body["rate"]],
        }
        node = mbs.AddNode(items.NodeRigidBody2D(**start))
        number = mbs.AddObject(
            items.ObjectRigidBody2D(nodeNumber=node, physicsMass=body["mass"], physicsInertia=body["inertia"])
        )
        bodies[body["name"]] = (number, body["center"])
        marker = mbs.AddMarker(items.MarkerBodyRigid(bodyNumber=number, localPosition=[0, 0, 0]))
        if model["gravity"]:
            mbs.AddLoad(items.Force(markerNumber=marker, loadVector=[0, -body["mass"] * model["gravity"], 0]))
        if body["torque"]:
            mbs.AddLoad(items.Torque(markerNumber=marker, loadVector=[0, 0, body["torque"]]))

    def marker_at(name, point):
        number, center = bodies[name]
        place = [point[0] - center[0], point[1] - center[1], 0]
        return mbs.AddMarker(items.MarkerBodyRigid(bodyNumber=number, localPosition=place))

    for a, b, point in model["hinges"]:
        mbs.AddObject(items.ObjectJointRevolute2D(markerNumbers=[marker_at(a, point), marker_at(b, point)]))
    if spring := model["spring"]:
        ends = [marker_at("ground", spring["anchor"]), marker_at(spring["body"], spring["point"])]
        force = {"stiffness": spring["stiffness"], "referenceLength": spring["rest"]}
        mbs.AddObject(items.ObjectConnectorSpringDamper(markerNumbers=ends, **force))
    mbs.Assemble()
    return mbs


def simulate(mbs, end: float, solver: str, steps: int) -> dict:
    """Return the answer to a run."""
    import exudyn as exu

    settings = exu.SimulationSettings()
    settings.timeIntegration.numberOfSteps = steps
    settings.timeIntegration.endTime = end
    settings.timeIntegration.newton.relativeTolerance = 1e-11
    settings.timeIntegration.newton.absoluteTolerance = 1e-13
    settings.timeIntegration.newton.useModifiedNewton = True
    settings.timeIntegration.verboseMode = 0
    settings.solutionSettings.writeSolutionToFile = False
    settings.solutionSettings.sensorsWritePeriod = end
    try:
        mbs.SolveDynamic(
            settings,
            solverType=getattr(exu.DynamicSolverType, solver),
            showHints=False,
            showCausingItems=False,
        )
    except exu.SolverError as error:  # at singular configurations
        return {"failed": str(error)[:200]}
    return {"coordinates": [float(x) for x in mbs.systemData.GetODE2Coordinates()]}


def main() -> None:
    """Answer until stdin ends."""
    # Exudyn prints from C++ too: answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    model = json.loads(sys.stdin.readline())
    mbs = build(model)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(
            json.dumps(simulate(mbs, model["end"], request["solver"], request["steps"])),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    main()
