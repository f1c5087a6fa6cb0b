"""User descriptions of bodies, joints and forces: elements, fields and checks."""
