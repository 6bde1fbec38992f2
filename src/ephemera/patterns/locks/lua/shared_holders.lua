-- Functions of semaphores and read-write locks, before each of their scripts. A waiter gets an offer: a grant that
-- stands for a second unless the waiter confirms it, so one that hangs delays the next by that second at most.
-- KEYS[1]  the holders: a sorted set of tokens by the end of their leases (microseconds since 1970). A token begins
--          with what it asks for: 'p' (a permit), 'r' (to read) or 'w' (to write)
-- KEYS[2]  the fence counter
-- KEYS[3]  the waiters: a sorted set of channels by time of arrival, each ending with ':' and the waiter's token
-- KEYS[4]  the grants: a hash of tokens, 'permit fence since name'; the name is empty while it is offered
-- ARGV[1]  'token name' of the caller
-- ARGV[2]  the lease in milliseconds
-- ARGV[3]  the lifetime of the fence counter in milliseconds
-- ARGV[4]  how long an offer stands, in milliseconds
-- ARGV[5]  the number of permits; unused for a read-write lock
local holders, fences, waiters, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, name = string.match(ARGV[1], '^(%S+) ?(.*)$')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Writes a grant that ends after this many milliseconds; the keys live as long as the grant that ends last.
local function store(owner, grant, milliseconds)
  redis.call('ZADD', holders, now + milliseconds * 1000, owner)
  redis.call('HSET', grants, owner, grant)
  local lifetime = math.max(redis.call('PTTL', holders), tonumber(milliseconds))
  redis.call('PEXPIRE', holders, lifetime)
  redis.call('PEXPIRE', grants, lifetime)
  return grant
end

local function remove(owner)
  redis.call('HDEL', grants, owner)
  return redis.call('ZREM', holders, owner)
end

local function remove_expired()
  for _, owner in ipairs(redis.call('ZRANGE', holders, '-inf', now, 'BYSCORE')) do remove(owner) end
end

-- Whether a token may join the holders: a permit while some are free, readers with each other, a writer alone.
local function fits(owner)
  local count = redis.call('ZCARD', holders)
  if count == 0 then return true end
  local kind = string.sub(owner, 1, 1)
  if kind == 'p' then return count < tonumber(ARGV[5]) end
  return kind == 'r' and string.sub(redis.call('ZRANGE', holders, 0, 0)[1], 1, 1) == 'r'
end

-- Larger than any before it by the counter, and by the clock where the counter was lost.
local function next_fence()
  local fence = now
  local last = tonumber(redis.call('SET', fences, now, 'GET', 'PX', ARGV[3]) or 0) or 0
  if last >= now then
    fence = last + 1
    redis.call('SET', fences, fence, 'PX', ARGV[3])
  end
  return string.format('%.0f', fence)
end

-- The grants are read once for all permits of a script: nothing is released after the first of them.
local taken, next_permit = nil, 0
local function first_free_permit()
  if not taken then
    taken = {}
    for _, grant in ipairs(redis.call('HVALS', grants)) do taken[tonumber(string.match(grant, '^%d+')) or ''] = true end
  end
  while taken[next_permit] do next_permit = next_permit + 1 end
  taken[next_permit] = true
  return next_permit
end

-- Grants what fits. Readers that hold the lock together have one fence; everyone else gets the next one.
local function grant(owner, owner_name, milliseconds)
  local other = redis.call('ZRANGE', holders, 0, 0)[1]
  if not other then redis.call('DEL', grants) end
  local kind, permit, fence = string.sub(owner, 1, 1), 0, nil
  if kind == 'p' then permit = first_free_permit() end
  if kind == 'r' and other then
    fence = string.match(redis.call('HGET', grants, other) or '', '^%d+ (%d+)')
  end
  fence = fence or next_fence()
  return store(owner, string.format('%d %s %.0f %s', permit, fence, now, owner_name), milliseconds)
end

-- Offers what is free to those who wait, in order of arrival; true if no one waits any more. The first one that must
-- keep waiting will try when the offers end. Waiters without a subscription are gone, and removed; with `probe` also
-- one that holds others up, who gets a message that changes nothing (a writer that died while it waited for readers).
local function offer_to_waiters(probe)
  local offered = false
  for _ = 1, 1000 do
    local first = redis.call('ZRANGE', waiters, 0, 0)[1]
    if not first then return true end
    local waiter = string.match(first, '[^:]+$')
    local fit = fits(waiter)
    if not (fit or offered or probe) then return false end
    local listens = redis.call('SPUBLISH', first, fit and '0' or offered and ARGV[4] or ARGV[2]) > 0
    if listens and not fit then return false end
    redis.call('ZREM', waiters, first)
    if listens then
      grant(waiter, '', ARGV[4])
      offered = true
    end
  end
end
