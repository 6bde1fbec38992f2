-- Reserves amounts if all of them fit into their limits, otherwise nothing.
-- KEYS[1]  the live totals of the organization and period: a hash
-- KEYS[2]  its reservations: a hash of id to 'measure amount ...', and of '=measure' to the sum of them
-- KEYS[3]  when they expire: a sorted set of ids by milliseconds since 1970
-- ARGV[1]  the id of the reservation
-- ARGV[2]  after how many milliseconds it expires
-- ARGV[3]  the TTL of the reservations' keys in milliseconds
-- ARGV[4]  the period's start and
-- ARGV[5]  end in milliseconds since 1970
-- ARGV[6]  and on: measure, amount, limit ('' for none), measure, amount, limit ...
-- RETURNS  1 reserved, now or before; 0 call again: expired reservations are left, without which it may fit; nil the
--          totals are missing; {now in milliseconds} the period is not the current one; {the measure that exceeds its
--          limit, used, reserved}
local totals, held, expiries, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < tonumber(ARGV[4]) or now >= tonumber(ARGV[5]) then return {now} end
local fields = redis.pcall('HLEN', totals)
if type(fields) ~= 'number' then redis.call('DEL', totals) end  -- of another type: not written by us
if type(fields) ~= 'number' or fields == 0 then return false end
local function whole(text)
  return type(text) == 'string' and #text <= 17 and string.find(text, '^%-?%d+$') and tonumber(text) or nil
end
-- Reservations that we did not write are removed, as if they were lost.
local is_ours = type(redis.pcall('ZCARD', expiries)) == 'number' and type(redis.pcall('HLEN', held)) == 'number'
for i = 6, #ARGV, 3 do
  is_ours = is_ours and whole(redis.call('HGET', held, '=' .. ARGV[i]) or '0')
end
if not is_ours then redis.call('DEL', held, expiries) end

-- Expired reservations are cleared, a bounded number per call.
local at_most = 1000
local expired = redis.call('ZRANGE', expiries, '-inf', now, 'BYSCORE', 'LIMIT', 0, at_most)
if #expired > 0 then
  local freed = {}
  for _, reserved in ipairs(redis.call('HMGET', held, unpack(expired))) do
    for measure, amount in string.gmatch(reserved or '', '(%S+) (%S+)') do
      freed[measure] = (freed[measure] or 0) + (tonumber(amount) or 0)
    end
  end
  for measure, amount in pairs(freed) do redis.pcall('HINCRBY', held, '=' .. measure, string.format('%.0f', -amount)) end
  redis.call('HDEL', held, unpack(expired))
  redis.call('ZREM', expiries, unpack(expired))
end
if redis.call('HEXISTS', held, id) == 1 then return 1 end

local parts = {}
for i = 6, #ARGV, 3 do
  local measure, amount, limit = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local used = whole(redis.call('HGET', totals, measure) or '0')
  if not used then  -- not written by us: the caller rebuilds them from SQL
    redis.call('DEL', totals)
    return false
  end
  local reserved = tonumber(redis.call('HGET', held, '=' .. measure) or 0)
  if limit ~= '' and used + reserved + amount > tonumber(limit) then
    return #expired == at_most and 0 or {measure, used, reserved}
  end
  parts[#parts + 1] = measure .. ' ' .. amount
end
for i = 6, #ARGV, 3 do redis.call('HINCRBY', held, '=' .. ARGV[i], ARGV[i + 1]) end
redis.call('HSET', held, id, table.concat(parts, ' '))
redis.call('ZADD', expiries, now + ARGV[2], id)
redis.call('PEXPIRE', held, ARGV[3])
redis.call('PEXPIRE', expiries, ARGV[3])
return 1
