-- A part of other scripts: append_entry(stream, payload, max_entries, lifetime_ms, channel, message, untold) adds an
-- entry to a progress stream, keeps the newest max_entries, starts the stream's lifetime anew, and publishes the message
-- on the channel unless that is ''. It returns the entry's id as a string. Where untold is '1', events before this one
-- may not have come here: a number is left out, so that readers are told that something is missing.
-- An id is '<n>-<stamp>': n counts 1, 2, 3, ... from the stream's first entry; the stamp is when it was added
-- (microseconds since 1970 by the server's clock), larger than the one before it. A gap shows in n; a stream that was
-- lost, or came back from an older copy, shows in that it does not hold an id which a reader has seen.
-- The field `d` of an entry is its payload.
local function append_entry(stream, payload, max_entries, lifetime_ms, channel, message, untold)
  local time = redis.call('TIME')
  local n, stamp = 1, time[1] * 1000000 + time[2]
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if last then
    local last_n, last_stamp = last[1]:match('^(%d+)%-(%d+)$')
    n, stamp = last_n + 1, math.max(stamp, last_stamp + 1)
  end
  if untold == '1' then n = n + 1 end
  local id = string.format('%.0f-%.0f', n, stamp)
  redis.call('XADD', stream, 'MAXLEN', max_entries, id, 'd', payload)
  redis.call('PEXPIRE', stream, lifetime_ms)
  if channel ~= '' then redis.call('PUBLISH', channel, message) end
  return id
end
