-- Acquires a lock that is free or offered to this waiter, with the next fencing token; or returns its holder.
-- KEYS[1]  the lock: a holder's token and name, 'token name'; while it is offered to a waiter, its token alone
-- KEYS[2]  its fence counter
-- KEYS[3]  its waiters: a sorted set of their channels by time of arrival (microseconds since 1970)
-- ARGV[1]  the value of the lock if it is acquired: 'token name'
-- ARGV[2]  the lease in milliseconds
-- ARGV[3]  the lifetime of the fence counter in milliseconds
-- ARGV[4]  a waiter's token
-- ARGV[5]  its channel, which joins the queue if the lock is not free
-- ARGV[6]  the lifetime of the queue in milliseconds
-- RETURNS  the fence; or, of a lock that is not free, {milliseconds to the end of its lease, waiters before this
--          one, its value, its fence}
local lock, fences, waiters, channel = KEYS[1], KEYS[2], KEYS[3], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local held = redis.call('SET', lock, ARGV[1], 'NX', 'GET', 'PX', ARGV[2])
if held and held ~= ARGV[4] then
  local before = 0
  if channel then
    redis.call('ZADD', waiters, 'NX', now, channel)
    redis.call('PEXPIRE', waiters, ARGV[6])
    before = redis.call('ZRANK', waiters, channel)
  end
  return {redis.call('PTTL', lock), before, held, redis.call('GET', fences)}
end

-- Larger than any before it by the counter, and by the clock where the counter was lost.
local fence = now
local last = tonumber(redis.call('SET', fences, now, 'GET', 'PX', ARGV[3]) or 0) or 0
if last >= now then
  fence = last + 1
  redis.call('SET', fences, fence, 'PX', ARGV[3])
end
if held then redis.call('SET', lock, ARGV[1], 'PX', ARGV[2]) end
if channel then redis.call('ZREM', waiters, channel) end
return fence
