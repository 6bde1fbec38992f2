-- Shared part of other scripts: append_entry(stream, payload, max_entries, lifetime_ms, channel, message, terminal, gap)
-- appends an entry to a progress stream, keeps the newest max_entries, renews the stream's lifetime, and publishes the
-- message on the channel unless that is ''. It returns the entry's id as a string. If gap is '1', earlier events may be
-- missing: a number is skipped, so that readers notice.
-- reopen_stream(stream, lifetime_ms, channel, message) lets a stream that ended with a terminal entry continue: it appends a
-- mark, after which readers ignore that entry. It changes nothing if the stream is empty or has not ended.
-- An id is '<n>-<stamp>': n counts 1, 2, 3, ... from the stream's first entry; the stamp is the time of the entry
-- (microseconds since 1970 by the server's clock), larger than the one before it. A skipped n shows a gap; a stream that
-- was lost, or restored from an older copy, does not hold the id that a reader has seen.
-- The field `d` of an entry is its payload; `t` is 1 if it is terminal. A mark has the field `r`, and the payload of the
-- entry that it undoes, so that it decodes as an entry does.
local function next_id(last, gap)
  local time = redis.call('TIME')
  local n, stamp = 1, time[1] * 1000000 + time[2]
  if last then
    local last_n, last_stamp = last[1]:match('^(%d+)%-(%d+)$')
    n, stamp = last_n + 1, math.max(stamp, last_stamp + 1)
  end
  if gap == '1' then n = n + 1 end
  return string.format('%.0f-%.0f', n, stamp)
end
local function append_entry(stream, payload, max_entries, lifetime_ms, channel, message, terminal, gap)
  local id = next_id(redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1], gap)
  local fields = {'d', payload}
  if terminal == '1' then fields = {'d', payload, 't', '1'} end
  redis.call('XADD', stream, 'MAXLEN', max_entries, id, unpack(fields))
  redis.call('PEXPIRE', stream, lifetime_ms)
  if channel ~= '' then redis.call('PUBLISH', channel, message) end
  return id
end
local function reopen_stream(stream, lifetime_ms, channel, message)
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if not last or last[2][3] ~= 't' then return end
  redis.call('XADD', stream, next_id(last), 'r', '1', 'd', last[2][2])
  redis.call('PEXPIRE', stream, lifetime_ms)
  redis.call('PUBLISH', channel, message)
end
