"""GET /console: a page and its files, as they are. They hold no data, so nobody needs a token to read them."""

from importlib.resources import files

from falcon import HTTPRouteNotFound
from falcon.asgi import Request, Response

from handlers.mapping.to_drawing import to_style

PAGE, STYLE = "index.html", "diagram.css"  # the latter is written from diagrams/
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
FOLDER = files("handlers.console")
FILES = {
    f"/console/{file.name}": file.read_bytes()
    for file in FOLDER.iterdir()
    if file.name != PAGE and file.name.rpartition(".")[2] in TYPES
} | {"/console": FOLDER.joinpath(PAGE).read_bytes()}
PATHS = frozenset({*FILES, f"/console/{STYLE}"})


class Page:
    """GET /console and GET /console/{name}."""

    async def on_get(self, req: Request, resp: Response, name: str = PAGE) -> None:
        if req.path not in PATHS:
            raise HTTPRouteNotFound
        resp.content_type = TYPES[name.rpartition(".")[2]]
        resp.data = to_style().encode() if name == STYLE else FILES[req.path]
        resp.set_headers(HEADERS)
