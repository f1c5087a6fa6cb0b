"""One robot with contacts in three formats: a torso with a box and a cylinder, an arm and a hand, above the ground."""

TURN = 0.5235987755982988  # 30 degrees
_INERTIA = 'ixx="0.02" iyy="0.03" izz="0.04" ixy="0" ixz="0" iyz="0"'
_INERTIAL = f'<inertial><mass value="1"/><inertia {_INERTIA}/></inertial>'
_NUMBERS = "".join(
    f"<i{axes}>{value}</i{axes}>" for axes, value in (("xx", 0.02), ("yy", 0.03), ("zz", 0.04))
)
_SDF_INERTIAL = f"<inertial><mass>1</mass><inertia>{_NUMBERS}</inertia></inertial>"
_MJCF_INERTIAL = '<inertial pos="0 0 0" mass="1" diaginertia="0.02 0.03 0.04"/>'

URDF = f"""<robot name="robot">
<link name="torso">{_INERTIAL}
  <collision name="shell"><origin xyz="0.02 0 0" rpy="0 0 {TURN}"/><geometry><box size="0.2 0.3 0.4"/></geometry></collision>
  <collision name="drum"><origin xyz="0 0.3 0"/><geometry><cylinder radius="0.05" length="0.2"/></geometry></collision>
  <collision name="skin"><geometry><mesh filename="skin.stl"/></geometry></collision></link>
<link name="arm">{_INERTIAL}<collision name="rod"><origin xyz="0.15 0 0" rpy="0 {3 * TURN} 0"/>
  <geometry><capsule radius="0.03" length="0.2"/></geometry><contact_coefficients mu="0.5" kp="1e5"/></collision></link>
<link name="hand">{_INERTIAL}<collision name="tip"><geometry><sphere radius="0.06"/></geometry></collision></link>
<joint name="elbow" type="continuous"><parent link="torso"/><child link="arm"/><origin xyz="0.3 0 0"/>
  <axis xyz="0 1 0"/></joint>
<joint name="wrist" type="continuous"><parent link="arm"/><child link="hand"/><origin xyz="0.4 0 0"/>
  <axis xyz="0 1 0"/></joint>
<gazebo reference="torso"><mu1>0.3</mu1><mu2>0.2</mu2><kp>1e6</kp><kd>10</kd></gazebo>
</robot>"""

MJCF = f"""<mujoco><worldbody><geom name="ground" type="plane" size="1 1 1" friction="0"/>
  <body name="torso">{_MJCF_INERTIAL}<freejoint/>
    <geom name="shell" type="box" size="0.1 0.15 0.2" pos="0.02 0 0" euler="0 0 30" friction="0.3"/>
    <geom name="drum" type="cylinder" size="0.05 0.1" pos="0 0.3 0" friction="0.3"/>
    <body name="arm" pos="0.3 0 0">{_MJCF_INERTIAL}<joint name="elbow" type="hinge" axis="0 1 0"/>
      <geom name="rod" type="capsule" size="0.03 0.1" pos="0.15 0 0" euler="0 90 0" friction="0.5"/>
      <body name="hand" pos="0.4 0 0">{_MJCF_INERTIAL}<joint name="wrist" type="hinge" axis="0 1 0"/>
        <geom name="tip" type="sphere" size="0.06"/></body></body></body>
</worldbody></mujoco>"""


def _surface(mu, more=""):
    return f"<surface><friction><ode><mu>{mu}</mu>{more}</ode></friction></surface>"


SDF = f"""<sdf version="1.9"><world name="w"><gravity>0 0 -9.81</gravity>
<model name="floor"><static>true</static><link name="slab"><collision name="ground">
  <geometry><plane><normal>0 0 1</normal></plane></geometry>{_surface(0)}</collision></link></model>
<model name="robot"><self_collide>true</self_collide>
<link name="torso">{_SDF_INERTIAL}
  <collision name="shell"><pose>0.02 0 0 0 0 {TURN}</pose><geometry><box><size>0.2 0.3 0.4</size></box></geometry>
    {_surface(0.3, "<mu2>0.2</mu2><fdir1>1 0 0</fdir1><slip1>0.1</slip1>")}</collision>
  <collision name="drum"><pose>0 0.3 0 0 0 0</pose><geometry><cylinder><radius>0.05</radius><length>0.2</length>
    </cylinder></geometry><surface><friction><bullet><friction>0.3</friction></bullet></friction></surface></collision></link>
<link name="arm"><pose>0.3 0 0 0 0 0</pose>{_SDF_INERTIAL}<collision name="rod">
  <pose>0.15 0 0 0 {3 * TURN} 0</pose><geometry><capsule><radius>0.03</radius><length>0.2</length></capsule></geometry>
  {_surface(0.5)}</collision></link>
<link name="hand"><pose>0.7 0 0 0 0 0</pose>{_SDF_INERTIAL}<collision name="tip">
  <geometry><sphere><radius>0.06</radius></sphere></geometry><surface><friction><torsional/></friction>
  <bounce><restitution_coefficient>0.4</restitution_coefficient></bounce>
  <contact><ode><kp>1e6</kp><soft_cfm>0.1</soft_cfm></ode></contact></surface></collision></link>
<joint name="elbow" type="continuous"><parent>torso</parent><child>arm</child><axis><xyz>0 1 0</xyz></axis></joint>
<joint name="wrist" type="continuous"><parent>arm</parent><child>hand</child><axis><xyz>0 1 0</xyz></axis></joint>
</model></world></sdf>"""
