-- Acquires a permit, or a read-write lock, unless it is taken or others wait for it; or returns a holder.
-- KEYS, ARGV[1] to ARGV[5]  see shared_holders.lua
-- ARGV[6]  a waiter's token
-- ARGV[7]  its channel, which joins the queue if there is nothing to acquire
-- ARGV[8]  the lifetime of the queue in milliseconds
-- RETURNS  the grant, 'permit fence since name'; or {milliseconds to the end of the first lease, waiters before this
--          one, that holder as 'token name', its fence}
local channel = ARGV[7]
remove_expired()
local no_one_waits = offer_to_waiters(fits(token))

local offered = redis.call('ZSCORE', holders, token) and redis.call('HGET', grants, token)
if offered then
  local confirmed = string.format('%s%.0f %s', string.match(offered, '^%d+ %d+ '), now, name)
  return store(token, confirmed, ARGV[2])
end
if no_one_waits and fits(token) then return grant(token, name, ARGV[2]) end

local before = 0
if channel then
  redis.call('ZADD', waiters, 'NX', now, channel)
  redis.call('PEXPIRE', waiters, ARGV[8])
  before = redis.call('ZRANK', waiters, channel)
end
local first, ends = unpack(redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES'))
local held = first and redis.call('HGET', grants, first) or ''
local fence, holder = string.match(held, '^%d+ (%d+) %d+ (.*)$')
local left = math.max(0, math.ceil(((ends or now) - now) / 1000))
return {left, before, (first or '') .. ' ' .. (holder or ''), fence or '0'}
