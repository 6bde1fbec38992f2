-- KEYS: 1 a value.  ARGV: 1 what to add, an integer.
-- RETURNS: the new value; false when there is none. The lifetime stays.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
return redis.call('INCRBY', KEYS[1], ARGV[1])
