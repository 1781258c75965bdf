from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

class Orders(BaseHTTPRequestHandler):
    def do_GET(self):
        issuer, subject = self.headers.get("X-Jwksd-Issuer"), self.headers.get("X-Jwksd-Subject")
        if not issuer or not subject:
            self.send_error(401)  # no token was checked, or it has no subject
            return
        user = (issuer, unquote(subject))  # a subject is unique only within its issuer
        body = f"orders of {user}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("127.0.0.1", 8000), Orders).serve_forever()
