"""CVAT for images 1.1: one XML file that names the images and tags them with their classes."""

from xml.sax.saxutils import escape, quoteattr

from curate.exporting.coco import name_of
from curate.exporting.contract import Format, Plan
from curate.exporting.parts import AllParts, Part
from curate.exporting.rows import Rows
from curate.manifest.text import xml_text

IMAGES = "images"


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write an `image` a row, with a `tag` where its class is known."""
    for number, item in enumerate(rows.items, rows.start):
        sizes = "".join(f' {name}="{item.values.get(name, 0)}"' for name in ("width", "height"))
        line = f'  <image id="{number}" name={quoteattr(xml_text(name_of(item)))}{sizes}>'
        if item.label is not None:
            line += f'<tag label={quoteattr(xml_text(item.label))} source="manual"/>'
        part.piece(IMAGES, (line + "</image>\n").encode())


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Write the one file."""
    labels = "".join(
        f"<label><name>{escape(xml_text(name))}</name><type>tag</type><attributes/></label>" for name in plan.classes
    )
    file = parts.target(parts.out)
    file.write(b'<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n')
    file.write(f"  <meta><job><size>{parts.n_rows}</size><labels>{labels}</labels></job></meta>\n".encode())
    parts.join(file, IMAGES)
    file.write(b"</annotations>\n")
    return ()


CVAT = Format(
    part,
    finish,
    out="CVAT for images 1.1: an `image` a row with its path, size and a `tag` of its class",
    suffix=".xml",
    load=("import xml.etree.ElementTree as ET; data = ET.parse({out})",),
)
