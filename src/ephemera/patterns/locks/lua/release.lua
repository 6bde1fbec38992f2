-- Releases a lock, or leaves its queue. A lock with waiters is offered to the first one that listens, and the one
-- after it will try when the offer ends, in case the first one hangs.
-- KEYS[1]  the lock: a holder's token and name, 'token name'; while it is offered to a waiter, its token alone
-- KEYS[2]  its waiters: a sorted set of their channels, each ending with ':' and the waiter's token
-- ARGV[1]  the value of the lock if it is this holder's
-- ARGV[2]  how long an offer stands, in milliseconds
-- ARGV[3]  a waiter's token
-- ARGV[4]  and its channel
-- RETURNS  1, or 0 when the lock is not this holder's (any more)
local lock, waiters, offer = KEYS[1], KEYS[2], ARGV[2]
if ARGV[4] then redis.call('ZREM', waiters, ARGV[4]) end
local held = redis.call('GET', lock)
if not held or (held ~= ARGV[1] and held ~= ARGV[3]) then return 0 end

-- Wakes the first waiter, which tries after that many milliseconds. Waiters without a subscription are gone, and removed.
local function wake_first(milliseconds)
  for _ = 1, 1000 do
    local first = redis.call('ZRANGE', waiters, 0, 0)[1]
    if not first or redis.call('SPUBLISH', first, milliseconds) > 0 then return first end
    redis.call('ZREM', waiters, first)
  end
end

local next_waiter = wake_first('0')
if next_waiter then
  redis.call('ZREM', waiters, next_waiter)
  redis.call('SET', lock, string.match(next_waiter, '[^:]+$'), 'PX', offer)
  wake_first(offer)
else
  redis.call('DEL', lock)
end
return 1
