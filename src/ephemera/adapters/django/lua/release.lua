-- KEYS: 1 a lock.  ARGV: 1 the token of its holder.
-- RETURNS: 1; 0 when another holds it, or no one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
