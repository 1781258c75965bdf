import http.client, json, socket

class SignSocket(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/run/jwksd/sign.sock")

connection = SignSocket("localhost")
request = {"claims": {"sub": "alice", "aud": "my-api"}, "lifetimeSeconds": 300}
connection.request("POST", "/sign", json.dumps(request))
response = connection.getresponse()
token = response.read().decode()
if response.status != 200:
    raise RuntimeError(token)
print(token)
