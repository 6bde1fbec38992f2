-- KEYS: 1 a lock.  ARGV: 1 the token of its holder, 2 its new lifetime in ms.
-- RETURNS: 1; 0 when another holds it, or no one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
