"""Takes the pictures of the gallery from run folders of the experiments: python docs/pictures.py RUNS

RUNS is what was given to the experiments as --out. The newest run of each experiment that has a picture gives
its first one, as WebP of at most 1100 pixels in width, in docs/pictures/experiments.
"""

import pathlib
import sys

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
WIDTH = 1100
# Where an experiment draws several pictures, the one that answers its question.
CHOSEN = {"squeezing_mechanism": "plots/overlay.png", "crank_rocker": "plots/overlay.png", "car": "car.png"}


def picture(runs, name):
    """Returns the picture of the newest run of an experiment, None where there is none."""
    for folder in sorted(runs.glob(f"{name}-*"), reverse=True):
        found = [folder / CHOSEN[name]] if name in CHOSEN else []
        found += sorted(folder.glob("*.png")) + sorted((folder / "plots").glob("*.png"))
        found = [path for path in found if path.is_file()]
        if found:
            return found[0]
    return None


def main():
    """Writes all pictures; names what has none."""
    runs, out = pathlib.Path(sys.argv[1]), ROOT / "docs" / "pictures" / "experiments"
    out.mkdir(parents=True, exist_ok=True)
    missing = []
    for script in sorted((ROOT / "experiments").glob("*.py")):
        found = picture(runs, script.stem)
        if found is None:
            missing.append(script.stem)
            continue
        image = Image.open(found).convert("RGB")
        if image.width > WIDTH:
            image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.LANCZOS)
        image.save(out / f"{script.stem}.webp", quality=80, method=6)
    if missing:
        print(f"no picture of {', '.join(missing)} in {runs}: their pictures stay as they are")


if __name__ == "__main__":
    main()
