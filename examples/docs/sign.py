import http.client, json, socket

class SignSocket(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect("/run/jwksd/sign.sock")

connection = SignSocket("localhost", timeout=10)  # one per thread

def sign(request):
    for is_last in False, True:
        try:
            connection.request("POST", "/sign", json.dumps(request))
            response = connection.getresponse()
            token = response.read().decode()
            break
        except (OSError, http.client.HTTPException):
            connection.close()  # the next request reconnects
            if is_last:
                raise
    if response.status != 200:
        raise RuntimeError(token)
    return token

request = {"claims": {"sub": "alice", "aud": "my-api"}, "lifetimeSeconds": 300}
print(sign(request))
