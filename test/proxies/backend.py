"""A WSGI program behind the guard: a line of JSON about each request, as WSGI frameworks see it. Prints its port."""

import json
import posixpath
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128


class Handler(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def program(environ, start_response):
    path = environ["PATH_INFO"]
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    names = ("ISSUER", "SUBJECT", "CLIENT", "SCOPE")
    seen = {
        # Frameworks match the path unchanged, file servers normalize it, and old ones cut parameters off.
        "paths": [path, posixpath.normpath(path), path.split(";")[0]],
        "identity": {name.lower(): environ[f"HTTP_X_JWKSD_{name}"] for name in names if f"HTTP_X_JWKSD_{name}" in environ},
        "method": environ["REQUEST_METHOD"],
        "body": len(body),
    }
    text = json.dumps(seen).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
    return [text]


server = make_server("127.0.0.1", 0, program, Server, Handler)
print(server.server_port, flush=True)
server.serve_forever()
