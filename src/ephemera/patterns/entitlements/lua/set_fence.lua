-- Writes a fence into a key that is empty, before its value is loaded.
-- KEYS[1]  the key of a cached value
-- ARGV[1]  'hash' or 'value'
-- ARGV[2]  a new fence
-- ARGV[3]  how long a load may take, in milliseconds
-- RETURNS  what the key contains already, a value or another fence; nil when the fence was written
if ARGV[1] == 'hash' then
  local held = redis.call('HGETALL', KEYS[1])
  if #held > 0 then return held end
  redis.call('HSET', KEYS[1], '_fence', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return false
end
local held = redis.call('GET', KEYS[1])
if not held then redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return held
