require "json"
require "net/http"
require "socket"

socket = Net::BufferedIO.new(UNIXSocket.new("/run/jwksd/sign.sock"), read_timeout: 10)
request = Net::HTTP::Post.new("/sign", "Host" => "localhost", "Content-Type" => "application/json")
request.body = JSON.generate(claims: { sub: "alice", aud: "my-api" }, lifetimeSeconds: 300)
request.exec(socket, "1.1", "/sign")
response = Net::HTTPResponse.read_new(socket)
response.reading_body(socket, true) { response.body }
raise response.body unless response.code == "200"
puts response.body
