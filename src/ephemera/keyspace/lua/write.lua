-- Writes to one key and gives the key its lifetime, as one step.
-- KEYS[1]  the key
-- ARGV[1]  rule: renew (start the life anew), keep (start it only if the key has no end), carry (the same,
--          when the writes replace the key), until (end at an instant), none
-- ARGV[2]  the life in milliseconds; for until, the instant in milliseconds since 1970
-- ARGV[3]  guard: '' (write always), '(absent)' (only if the key is not there), or the shape `_v` that the
--          hash must have
-- ARGV[4]  and on: the writes, each as the number of its arguments, its name, its arguments after the key
-- RETURNS  the reply of each write; nil when nothing was written, because the instant has passed or the guard said no
local key, rule, life, guard = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if rule == 'until' then
  local now = redis.call('TIME')
  if tonumber(life) <= now[1] * 1000 + now[2] / 1000 then return false end
end
if guard == '(absent)' then
  if redis.call('EXISTS', key) == 1 then return false end
elseif guard ~= '' and redis.call('HGET', key, '_v') ~= guard then
  return false
end

local ends = rule == 'carry' and redis.call('PEXPIRETIME', key) or -1
local replies, at = {}, 4
while at < #ARGV do
  local last = at + 1 + ARGV[at]
  replies[#replies + 1] = redis.call(ARGV[at + 1], key, unpack(ARGV, at + 2, last))
  at = last + 1
end

if rule == 'until' then
  redis.call('PEXPIREAT', key, life)
elseif ends > 0 then
  redis.call('PEXPIREAT', key, ends)
elseif rule == 'renew' or rule == 'carry' or (rule == 'keep' and redis.call('PTTL', key) == -1) then
  redis.call('PEXPIRE', key, life)
end
return replies
