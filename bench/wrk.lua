-- A path such as /*1000*/jwks stands for /0/jwks to /999/jwks, in turn.
init = function()
  local before, count, after = wrk.path:match("^(.*)%*(%d+)%*(.*)$")
  if not before then return end
  local turn = 0
  request = function()
    turn = (turn + 1) % count
    return wrk.format(nil, before .. string.format("%d", turn) .. after)
  end
end

-- One line of JSON instead of wrk's table. wrk counts in microseconds.
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%f,"p99Ms":%f,"failed":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
