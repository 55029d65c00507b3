"""Images of one template that differ in little, drawn from fixed seeds, and the edits that make true copies."""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

Draw = np.random.Generator
LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
WORDS = [
    "milk",
    "bread",
    "apple",
    "soap",
    "paper",
    "juice",
    "water",
    "pasta",
    "rice",
    "salt",
    "sugar",
    "coffee",
    "tea",
    "flour",
    "butter",
    "cheese",
]


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _text(draw: Draw, n: int) -> str:
    return " ".join("".join(chr(97 + int(c)) for c in draw.integers(0, 26, draw.integers(2, 9))) for _ in range(n))


def _number(draw: Draw, n: int) -> str:
    return "".join(str(int(digit)) for digit in draw.integers(0, 10, n))


def _noisy(image: Image.Image, draw: Draw, sigma: float, gain: float = 1.0) -> Image.Image:
    pixels = np.asarray(image, np.float32) * gain + draw.normal(0, sigma, (image.height, image.width, 1))
    return Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))


def _scrawl(pen: ImageDraw.ImageDraw, draw: Draw, left: float, middle: float, length: float, height: float) -> None:
    """Draw handwriting: a wave of random letters, in ink."""
    x = np.arange(0, length, 1.5)
    phase = np.cumsum(draw.uniform(0.15, 0.5, len(x)))
    y = middle + height / 2 * np.sin(phase) * draw.uniform(0.4, 1, len(x)).repeat(1)
    points = [(left + a + 3 * np.cos(b), c) for a, b, c in zip(x, phase, y, strict=True)]
    pen.line(points, fill=(30, 40, 110), width=2)


def form(seed: int, number: int) -> Image.Image:
    """Return a scanned page: printed lines and boxes, of which some are filled in by hand."""
    base, draw = np.random.default_rng(seed), np.random.default_rng([seed, number, 1])
    image = Image.new("RGB", (850, 1200), (250, 249, 244))
    pen = ImageDraw.Draw(image)
    pen.text((60, 40), _text(base, 4), fill=(20, 20, 20), font=_font(34))
    for line in range(22):
        y = 120 + 47 * line
        pen.text((60, y), _text(base, 3), fill=(40, 40, 40), font=_font(18))
        pen.rectangle((330, y - 8, 790, y + 28), outline=(120, 120, 120))
        if line % 6 == 0:
            _scrawl(pen, draw, 340, y + 10, draw.uniform(60, 300), 18)
    return _noisy(image, draw, 2.5)


def answer(seed: int, number: int) -> Image.Image:
    """Return a filled-in page of which a single number of four digits differs."""
    base, draw = np.random.default_rng(seed), np.random.default_rng([seed, number, 12])
    image = Image.new("RGB", (850, 1200), (255, 255, 255))
    pen = ImageDraw.Draw(image)
    for line in range(30):
        y = 40 + 37 * line
        pen.text((60, y), _text(base, 5)[:36], fill=(40, 40, 40), font=_font(20))
        pen.text((520, y), _number(draw if line == 12 else base, 4), fill=(20, 20, 90), font=_font(24))
    return _noisy(image, draw, 2)


def sheet(seed: int, number: int) -> Image.Image:
    """Return a score sheet: a table whose cells hold other digits."""
    base, draw = np.random.default_rng(seed), np.random.default_rng([seed, number, 2])
    image = Image.new("RGB", (1000, 700), (255, 255, 255))
    pen = ImageDraw.Draw(image)
    for row in range(14):
        y = 20 + 47 * row
        pen.line((20, y, 980, y), fill=(0, 0, 0))
        pen.text((30, y + 12), _text(base, 2)[:18], fill=(0, 0, 0), font=_font(20))
        for column in range(8):
            x = 230 + 94 * column
            pen.line((x - 6, 20, x - 6, 631), fill=(0, 0, 0))
            pen.text((x + 20, y + 8), _number(draw if row else base, 2), fill=(20, 20, 120), font=_font(26))
    return image


def receipt(seed: int, number: int) -> Image.Image:
    """Return a receipt: the same shop, other articles and prices."""
    base, draw = np.random.default_rng(seed), np.random.default_rng([seed, number, 3])
    image = Image.new("RGB", (420, 900), (236, 234, 228))
    pen = ImageDraw.Draw(image)
    pen.text((90, 30), _text(base, 2).upper()[:14], fill=(40, 40, 40), font=_font(34))
    for line in range(3):
        pen.text((80, 90 + 28 * line), _text(base, 4)[:28], fill=(60, 60, 60), font=_font(18))
    for line in range(16):
        y = 210 + 34 * line
        name = WORDS[int(draw.integers(len(WORDS)))] if line % 2 else WORDS[int(base.integers(len(WORDS)))]
        pen.text((40, y), f"{name} {_number(draw, 2)}", fill=(50, 50, 50), font=_font(22))
        pen.text((300, y), f"{_number(draw, 1)}.{_number(draw, 2)}", fill=(50, 50, 50), font=_font(22))
    pen.text((40, 790), f"TOTAL {_number(draw, 2)}.{_number(draw, 2)}", fill=(20, 20, 20), font=_font(36))
    return _noisy(image, draw, 4, float(draw.uniform(0.97, 1.03)))


def identity_card(seed: int, number: int) -> Image.Image:
    """Return an identity card: another face, name and number on one pattern."""
    base, draw = np.random.default_rng(seed), np.random.default_rng([seed, number, 4])
    across, down = np.meshgrid(np.linspace(0, 1, 640), np.linspace(0, 1, 400))
    wave = 225 + 18 * np.sin(40 * across + 9 * np.sin(6 * down + base.uniform(0, 6)))
    image = Image.fromarray(np.stack([wave - 20, wave, wave - 8], -1).clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    pen.text((30, 20), _text(base, 3).upper()[:24], fill=(20, 40, 90), font=_font(32))
    skin, hair = draw.integers(110, 230), int(draw.integers(20, 120))
    pen.rectangle((30, 90, 200, 320), fill=(200, 205, 210))
    w, h = draw.integers(48, 62), draw.integers(64, 82)
    pen.ellipse((115 - w, 195 - h - 14, 115 + w, 195 + h - 30), fill=(hair, hair // 2, hair // 3))
    pen.ellipse((115 - w + 8, 200 - h, 115 + w - 8, 200 + h), fill=(int(skin), int(skin * 0.8), int(skin * 0.65)))
    for line in range(4):
        pen.text((230, 100 + 55 * line), _text(base, 1), fill=(90, 90, 90), font=_font(14))
        pen.text((230, 115 + 55 * line), _text(draw, 2).upper()[:18], fill=(10, 10, 10), font=_font(24))
    pen.text((330, 350), _number(draw, 9), fill=(120, 20, 20), font=_font(30))
    return _noisy(image, draw, 2)


def plate(seed: int, number: int) -> Image.Image:
    """Return the front of a car with another number plate."""
    draw = np.random.default_rng([seed, number, 5])
    image = Image.new("RGB", (640, 480), (150, 155, 160))
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 330, 640, 480), fill=(85, 85, 88))
    pen.polygon([(150, 90), (490, 90), (560, 220), (80, 220)], fill=(60, 70, 85))
    pen.rounded_rectangle((60, 210, 580, 410), 40, fill=(150, 30, 35))
    for x in (120, 460):
        pen.ellipse((x, 235, x + 70, 290), fill=(240, 240, 225))
    pen.rectangle((220, 250, 420, 300), fill=(30, 30, 30))
    pen.rectangle((225, 330, 415, 372), fill=(245, 245, 240), outline=(0, 0, 0))
    letters = "".join(LETTERS[int(i)] for i in draw.integers(0, len(LETTERS), 3))
    pen.text((236, 334), f"{letters} {_number(draw, 4)}", fill=(10, 10, 10), font=_font(32))
    return _noisy(image, draw, 4, float(draw.uniform(0.97, 1.03)))


def screen(seed: int, number: int) -> Image.Image:
    """Return a screenshot of one application with other text in its list."""
    base, draw = np.random.default_rng(seed), np.random.default_rng([seed, number, 6])
    image = Image.new("RGB", (1280, 800), (255, 255, 255))
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, 1280, 56), fill=(30, 90, 160))
    pen.text((20, 12), _text(base, 3), fill=(255, 255, 255), font=_font(28))
    pen.rectangle((0, 56, 240, 800), fill=(238, 240, 244))
    for line in range(14):
        pen.text((24, 80 + 46 * line), _text(base, 2)[:18], fill=(60, 60, 70), font=_font(20))
    for line in range(9):
        y = 90 + 74 * line
        pen.ellipse((270, y, 310, y + 40), fill=tuple(int(c) for c in base.integers(80, 220, 3)))
        pen.text((330, y), _text(draw, 3), fill=(20, 20, 20), font=_font(20))
        pen.text((330, y + 28), _text(draw, 9), fill=(120, 120, 120), font=_font(16))
    return image


def slide(seed: int, number: int) -> Image.Image:
    """Return a microscope slide: the same light and dust, other cells."""
    base, draw = np.random.default_rng(seed), np.random.default_rng([seed, number, 7])
    across, down = np.meshgrid(np.linspace(-1, 1, 512), np.linspace(-1, 1, 512))
    light = 225 - 70 * (across**2 + down**2) + base.normal(0, 12, (16, 16)).repeat(32, 0).repeat(32, 1)
    image = Image.fromarray(np.stack([light, light - 12, light + 4], -1).clip(0, 255).astype(np.uint8))
    image = image.filter(ImageFilter.GaussianBlur(14))
    pen = ImageDraw.Draw(image)
    for _ in range(int(draw.integers(3, 9))):
        x, y, r = *draw.uniform(30, 480, 2).tolist(), draw.uniform(9, 20)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=(190, 150, 190))
        pen.ellipse((x - r / 2.5, y - r / 2.5, x + r / 2.5, y + r / 2.5), fill=(120, 70, 140))
    return _noisy(image.filter(ImageFilter.GaussianBlur(1.2)), draw, 3, float(draw.uniform(0.97, 1.03)))


def scene(seed: int) -> Image.Image:
    """Return the place that a fixed camera sees: grass, trees and sky."""
    base = np.random.default_rng(seed)
    octaves = [base.normal(0, 1, (4 * 2**k, 6 * 2**k)) for k in range(6)]
    texture = sum(
        np.asarray(Image.fromarray(each.astype(np.float32)).resize((640, 480), Image.Resampling.BICUBIC)) * 24 / 1.6**k
        for k, each in enumerate(octaves)
    )
    down = np.linspace(0, 1, 480)[:, None]
    grey = np.where(down < 0.35, 190 + 0.4 * texture, 95 + texture)
    image = Image.fromarray(np.stack([grey * 0.95, grey, grey * 0.8], -1).clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for x in base.uniform(20, 620, 5):
        pen.rectangle((x, 60, x + base.uniform(8, 24), 330), fill=(60, 50, 40))
    return image.filter(ImageFilter.GaussianBlur(0.8))


SCENES: dict[int, Image.Image] = {}


def camera(seed: int, number: int) -> Image.Image:
    """Return a frame of a fixed camera: another animal, noise and exposure; every eighth frame has none but a bird."""
    if seed not in SCENES:
        SCENES[seed] = scene(seed)
    draw = np.random.default_rng([seed, number, 8])
    image = SCENES[seed].copy()
    pen = ImageDraw.Draw(image)
    size = draw.uniform(10, 45)
    x, y = draw.uniform(60, 580), draw.uniform(200, 430)
    tone = int(draw.choice([25, 45, 165, 190]))
    pen.ellipse((x - size, y - size / 2, x + size, y + size / 2), fill=(tone, int(tone * 0.8), int(tone * 0.6)))
    pen.ellipse((x + size * 0.7, y - size * 0.8, x + size * 1.4, y - size * 0.1), fill=(tone, tone, tone))
    for leg in (-0.6, -0.3, 0.3, 0.6):
        pen.line((x + leg * size, y, x + leg * size, y + size), fill=(tone, tone, tone), width=max(2, int(size / 8)))
    return _noisy(image, draw, float(draw.uniform(2, 6)), float(draw.uniform(0.95, 1.05)))


def product(seed: int, number: int) -> Image.Image:
    """Return a shot of a bottle of one mould: another batch number, fill level, and small dents or specks."""
    draw = np.random.default_rng([seed, number, 9])
    image = Image.new("RGB", (500, 700), (248, 248, 248))
    pen = ImageDraw.Draw(image)
    pen.rounded_rectangle((150, 180, 350, 660), 40, fill=(120, 160, 190))
    pen.rectangle((210, 60, 290, 190), fill=(120, 160, 190))
    pen.rectangle((205, 40, 295, 80), fill=(40, 60, 90))
    level = int(draw.integers(200, 260))
    pen.rectangle((156, level, 344, level + 6), fill=(90, 125, 160))
    pen.rectangle((150, 330, 350, 540), fill=(250, 240, 215))
    pen.text((190, 360), "Aqua", fill=(20, 60, 120), font=_font(48))
    pen.text((185, 500), f"LOT {_number(draw, 6)}", fill=(60, 60, 60), font=_font(20))
    for _ in range(int(draw.integers(1, 4))):
        x, y, r = draw.uniform(165, 335), draw.uniform(270, 640), draw.uniform(3, 9)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=(80, 90, 100))
    return _noisy(image.filter(ImageFilter.GaussianBlur(1)), draw, 2.5, float(draw.uniform(0.97, 1.03)))


def captcha(seed: int, number: int) -> Image.Image:
    """Return rendered digits on one noisy ground."""
    base, draw = np.random.default_rng(seed), np.random.default_rng([seed, number, 10])
    ground = base.normal(225, 14, (60, 180, 1)).repeat(3, 2)
    image = Image.fromarray(ground.clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    pen.line([(x, 30 + 14 * np.sin(x / 17)) for x in range(0, 180, 3)], fill=(120, 120, 160), width=2)
    pen.text((18, 10), " ".join(_number(draw, 5)), fill=(40, 40, 60), font=_font(36))
    return image


def volume_slice(seed: int, number: int) -> Image.Image:
    """Return a slice of a volume: every structure is slightly larger or smaller than in the slice before."""
    base = np.random.default_rng(seed)
    across, down = np.meshgrid(np.linspace(-1, 1, 256), np.linspace(-1, 1, 256))
    grey = np.where(across**2 / 0.8 + down**2 < 0.85, 90.0, 8.0)
    for _ in range(40):
        x, y, z, r = base.uniform(-0.6, 0.6), base.uniform(-0.6, 0.6), base.uniform(-30, 330), base.uniform(0.05, 0.22)
        left = r**2 - ((number - z) / 250) ** 2
        tone = base.uniform(40, 220)
        if left > 0:
            grey = np.where((across - x) ** 2 + (down - y) ** 2 < left, tone, grey)
    image = Image.fromarray(np.repeat(grey[..., None], 3, 2).clip(0, 255).astype(np.uint8))
    return _noisy(image.filter(ImageFilter.GaussianBlur(1)), np.random.default_rng([seed, number, 11]), 4)


DOMAINS: dict[str, Callable[[int, int], Image.Image]] = {
    "forms": form,
    "one number": answer,
    "number plates": plate,
    "fixed camera": camera,
    "screenshots": screen,
    "volume slices": volume_slice,
    "score sheets": sheet,
    "receipts": receipt,
    "identity cards": identity_card,
    "microscope slides": slide,
    "products": product,
    "digits": captcha,
}
CHOSEN_ON = (
    "forms",
    "one number",
    "number plates",
    "fixed camera",
    "screenshots",
    "volume slices",
)  # the others only measure


def encoded(image: Image.Image, kind: str, quality: int = 90) -> bytes:
    """Return an image as JPEG, PNG or WebP."""
    out = io.BytesIO()
    image.save(out, kind, **({} if kind == "PNG" else {"quality": quality}))
    return out.getvalue()


def _resized(image: Image.Image, share: float) -> Image.Image:
    size = max(1, round(image.width * share)), max(1, round(image.height * share))
    return image.resize(size, Image.Resampling.LANCZOS)


def _cropped(image: Image.Image, share: float) -> Image.Image:
    x, y = image.width * share, image.height * share
    return image.crop((round(x), round(y / 2), image.width - round(x / 2), image.height - round(y)))


EDITS: dict[str, Callable[[Image.Image], bytes]] = {
    "jpeg-60": lambda image: encoded(image, "JPEG", 60),
    "jpeg-80": lambda image: encoded(image, "JPEG", 80),
    "jpeg-95": lambda image: encoded(image, "JPEG", 95),
    "png": lambda image: encoded(image, "PNG"),
    "webp-80": lambda image: encoded(image, "WEBP", 80),
    "resized-75": lambda image: encoded(_resized(image, 0.75), "JPEG", 90),
    "resized-50": lambda image: encoded(_resized(image, 0.5), "JPEG", 85),
    "crop-1": lambda image: encoded(_cropped(image, 0.01), "JPEG", 90),
    "crop-2": lambda image: encoded(_cropped(image, 0.02), "JPEG", 90),
    "brighter": lambda image: encoded(ImageEnhance.Brightness(image).enhance(1.06), "JPEG", 90),
    "darker": lambda image: encoded(ImageEnhance.Brightness(image).enhance(0.92), "JPEG", 90),
    "contrast": lambda image: encoded(ImageEnhance.Contrast(image).enhance(1.1), "JPEG", 90),
}
