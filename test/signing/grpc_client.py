"""Calls the external signer at a socket as Python's gRPC does: reads [method, request, seconds] in lines of JSON, and answers in such lines."""

import json
import sys

import grpc
from google.protobuf import json_format

sys.path.insert(0, sys.argv[1])
import external_jwt_signer_pb2 as messages  # noqa: E402  made by protoc

types = {
    "Sign": (messages.SignJWTRequest, messages.SignJWTResponse),
    "FetchKeys": (messages.FetchKeysRequest, messages.FetchKeysResponse),
    "Metadata": (messages.MetadataRequest, messages.MetadataResponse),
    "Unknown": (messages.MetadataRequest, messages.MetadataResponse),
}
channel = grpc.insecure_channel("unix:" + sys.argv[2], options=[("grpc.default_authority", "localhost")])
for line in sys.stdin:
    method, request, seconds = json.loads(line)
    asked, answered = types[method]
    call = channel.unary_unary(
        "/v1.ExternalJWTSigner/" + method,
        request_serializer=asked.SerializeToString,
        response_deserializer=answered.FromString,
    )
    try:
        reply = json_format.MessageToDict(call(asked(**request), timeout=seconds))
    except grpc.RpcError as error:
        reply = {"code": error.code().name, "details": error.details()}
    print(json.dumps(reply), flush=True)
