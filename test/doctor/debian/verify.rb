# Verifies tokens with ruby-jwt, as its documentation shows it. One JSON object per line in, one out.
require "json"
require "jwt"
require "net/http"

$stdout.sync = true
$stdin.each_line do |line|
  asked = JSON.parse(line)
  begin
    jwks = JSON.parse(Net::HTTP.get(URI(asked["jwksUri"])), symbolize_names: true)
    JWT.decode(asked["token"], nil, true, algorithms: %w[ES256 RS256], jwks: jwks,
               iss: asked["iss"], verify_iss: true, aud: "relying-party", verify_aud: true)
    puts JSON.generate(verified: true)
  rescue StandardError => e
    puts JSON.generate(verified: false, error: "#{e.class}: #{e.message}"[0, 300].scrub)
  end
end
