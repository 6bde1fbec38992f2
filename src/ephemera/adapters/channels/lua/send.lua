-- KEYS: 1 a queue of messages, sorted by time.
-- ARGV: 1 a message, 2 how many the queue holds, 3 the seconds that a message lives.
-- RETURNS: 1; 0 when the queue is full.
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if last and tonumber(last) >= now then
  now = last + 0.000001  -- messages of one microsecond stay in order
end
redis.call('ZADD', KEYS[1], string.format('%.6f', now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3] * 1000)
return 1
