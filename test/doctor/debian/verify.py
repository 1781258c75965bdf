"""Verifies tokens with a Python library, as its documentation shows. One JSON object per line in, one out."""
import json
import sys
import urllib.request

ALGORITHMS = ["ES256", "RS256"]
AUDIENCE = "relying-party"
# Whether what was fetched is kept from one token to the next.
KEPT = sys.argv[2:] == ["kept"]
kept = {}


def client(uri, make):
    """Returns a client for this URI: a new one, or the existing one."""
    if not KEPT:
        return make()
    if uri not in kept:
        kept[uri] = make()
    return kept[uri]


def fetched(uri):
    with urllib.request.urlopen(uri, timeout=10) as response:
        return response.read()


def pyjwt(uri, issuer, token):
    import jwt

    key = client(uri, lambda: jwt.PyJWKClient(uri)).get_signing_key_from_jwt(token)
    jwt.decode(token, key.key, algorithms=ALGORITHMS, audience=AUDIENCE, issuer=issuer)


def authlib(uri, issuer, token):
    from authlib.jose import JsonWebKey, JsonWebToken

    keys = JsonWebKey.import_key_set(json.loads(fetched(uri)))
    expected = {"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": AUDIENCE}}
    JsonWebToken(ALGORITHMS).decode(token, keys, claims_options=expected).validate()


def authlib_client(uri, issuer, token):
    """Checks ID tokens as Authlib's client for Flask does."""
    from authlib.integrations.flask_client import FlaskOAuth2App, OAuth

    metadata = f"{issuer}/.well-known/openid-configuration"
    app = client(uri, lambda: FlaskOAuth2App(OAuth(), "op", client_id=AUDIENCE, server_metadata_url=metadata))
    app.parse_id_token({"id_token": token}, "nonce")


def jwcrypto(uri, issuer, token):
    from jwcrypto.jwk import JWKSet
    from jwcrypto.jwt import JWT

    keys = JWKSet.from_json(fetched(uri).decode())
    JWT(jwt=token, key=keys, algs=ALGORITHMS, check_claims={"iss": issuer, "aud": AUDIENCE})


def jose(uri, issuer, token):
    from jose import jwt

    # It tries the keys of a set in turn and fails at a key of another type, so the caller selects the key, as guides do.
    kid = jwt.get_unverified_header(token)["kid"]
    key = next(key for key in json.loads(fetched(uri))["keys"] if key.get("kid") == kid)
    jwt.decode(token, key, algorithms=ALGORITHMS, audience=AUDIENCE, issuer=issuer)


verify = {"pyjwt": pyjwt, "authlib": authlib, "authlib-client": authlib_client, "jwcrypto": jwcrypto, "python-jose": jose}[sys.argv[1]]
for line in sys.stdin:
    asked = json.loads(line)
    try:
        verify(asked["jwksUri"], asked["iss"], asked["token"])
        answer = {"verified": True}
    except Exception as error:  # Whatever is raised, the token is not accepted.
        answer = {"verified": False, "error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(answer), flush=True)
