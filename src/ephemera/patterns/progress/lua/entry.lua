-- Shared part of other scripts: append_entry(stream, payload, max_entries, lifetime_ms, channel, message, gap) appends an
-- entry to a progress stream, keeps the newest max_entries, renews the stream's lifetime, and publishes the message on the
-- channel unless that is ''. It returns the entry's id as a string. If gap is '1', earlier events may be missing: a number
-- is skipped, so that readers notice.
-- An id is '<n>-<stamp>': n counts 1, 2, 3, ... from the stream's first entry; the stamp is the time of the entry
-- (microseconds since 1970 by the server's clock), larger than the one before it. A skipped n shows a gap; a stream that
-- was lost, or restored from an older copy, does not hold the id that a reader has seen.
-- The field `d` of an entry is its payload.
local function append_entry(stream, payload, max_entries, lifetime_ms, channel, message, gap)
  local time = redis.call('TIME')
  local n, stamp = 1, time[1] * 1000000 + time[2]
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if last then
    local last_n, last_stamp = last[1]:match('^(%d+)%-(%d+)$')
    n, stamp = last_n + 1, math.max(stamp, last_stamp + 1)
  end
  if gap == '1' then n = n + 1 end
  local id = string.format('%.0f-%.0f', n, stamp)
  redis.call('XADD', stream, 'MAXLEN', max_entries, id, 'd', payload)
  redis.call('PEXPIRE', stream, lifetime_ms)
  if channel ~= '' then redis.call('PUBLISH', channel, message) end
  return id
end
