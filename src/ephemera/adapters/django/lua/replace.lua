-- KEYS: 1 a value.  ARGV: 1 the value as it was read, 2 the new one.
-- RETURNS: 1; 0 when it has changed since. The lifetime stays.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
