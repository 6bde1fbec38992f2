-- Writes to one key and sets its TTL in one step.
-- KEYS[1]  the key
-- ARGV[1]  rule: renew (restart the TTL), keep (set it only if the key has none), carry (the same,
--          when the writes replace the key), until (expire at an instant), none
-- ARGV[2]  the TTL in milliseconds; for until, the instant in milliseconds since 1970
-- ARGV[3]  guard: '' (write always), '(absent)' (only if the key does not exist), or the layout `_v` that the
--          hash must have
-- ARGV[4]  and on: the writes, each as the number of its arguments, its name, its arguments after the key
-- RETURNS  the reply of each write; nil when nothing was written, because the instant has passed or the guard did not match
local key, rule, ttl, guard = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if rule == 'until' then
  local now = redis.call('TIME')
  if tonumber(ttl) <= now[1] * 1000 + now[2] / 1000 then return false end
end
if guard == '(absent)' then
  if redis.call('EXISTS', key) == 1 then return false end
elseif guard ~= '' and redis.call('HGET', key, '_v') ~= guard then
  return false
end

local expires = rule == 'carry' and redis.call('PEXPIRETIME', key) or -1
local replies, at = {}, 4
while at < #ARGV do
  local last = at + 1 + ARGV[at]
  replies[#replies + 1] = redis.call(ARGV[at + 1], key, unpack(ARGV, at + 2, last))
  at = last + 1
end

if rule == 'until' then
  redis.call('PEXPIREAT', key, ttl)
elseif expires > 0 then
  redis.call('PEXPIREAT', key, expires)
elseif rule == 'renew' or rule == 'carry' or (rule == 'keep' and redis.call('PTTL', key) == -1) then
  redis.call('PEXPIRE', key, ttl)
end
return replies
