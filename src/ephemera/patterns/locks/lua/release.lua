-- Gives up a lock, or the place in its queue. A lock that others wait for is offered to the first who listens,
-- and the one after it is told to look when the offer ends, in case the first has hung meanwhile.
-- KEYS[1]  the lock: a holder's token and name, 'token name'; while it is offered to a waiter, its token alone
-- KEYS[2]  its waiters: a sorted set of their channels, each ending with ':' and the waiter's token
-- ARGV[1]  what the lock holds if it is this holder's
-- ARGV[2]  how long an offer stands, in milliseconds
-- ARGV[3]  of one who waited: its token
-- ARGV[4]  and its channel
-- RETURNS  1, or 0 when the lock is not this holder's (any more)
local lock, waiters, offer = KEYS[1], KEYS[2], ARGV[2]
if ARGV[4] then redis.call('ZREM', waiters, ARGV[4]) end
local held = redis.call('GET', lock)
if not held or (held ~= ARGV[1] and held ~= ARGV[3]) then return 0 end

-- Tells the first waiter to look after so many milliseconds; those whom nobody hears are gone, and forgotten.
local function tell_first(milliseconds)
  for _ = 1, 1000 do
    local first = redis.call('ZRANGE', waiters, 0, 0)[1]
    if not first or redis.call('SPUBLISH', first, milliseconds) > 0 then return first end
    redis.call('ZREM', waiters, first)
  end
end

local heir = tell_first('0')
if heir then
  redis.call('ZREM', waiters, heir)
  redis.call('SET', lock, string.match(heir, '[^:]+$'), 'PX', offer)
  tell_first(offer)
else
  redis.call('DEL', lock)
end
return 1
