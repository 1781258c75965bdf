# Verifies tokens with ruby-jwt, as its documentation shows. One JSON object per line in, one out.
require "json"
require "jwt"
require "net/http"

$stdout.sync = true
kept = ARGV == ["kept"]

# The loader from its README, which refetches for an unknown kid every five minutes.
cached = nil
updated = nil
uri = nil
fetch = -> { JSON.parse(Net::HTTP.get(URI(uri)), symbolize_names: true) }
loader = lambda do |options|
  cached = nil if options[:kid_not_found] && updated < Time.now.to_i - 300
  cached ||= begin
    updated = Time.now.to_i
    fetch.call
  end
end

$stdin.each_line do |line|
  asked = JSON.parse(line)
  begin
    uri = asked["jwksUri"]
    jwks = kept ? loader : fetch.call
    JWT.decode(asked["token"], nil, true, algorithms: %w[ES256 RS256], jwks: jwks,
               iss: asked["iss"], verify_iss: true, aud: "relying-party", verify_aud: true)
    puts JSON.generate(verified: true)
  rescue StandardError => e
    puts JSON.generate(verified: false, error: "#{e.class}: #{e.message}"[0, 300].scrub)
  end
end
