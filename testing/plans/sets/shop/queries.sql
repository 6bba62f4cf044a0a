-- sale_buyer
select b.discount, b.last_name, b.credit, d.tax from buyer b, depot d where d.d_id = 1 and b.d_id = d.d_id and b.r_id = 3 and b.b_id = 77;
-- sale_district
select next_sale, tax from district where d_id = 1 and r_id = 3 for update;
-- sale_district_update
update district set next_sale = next_sale + 1 where d_id = 1 and r_id = 3;
-- sale_article
select price, name, notes from article where a_id = 500;
-- sale_articles
select a_id, price, name from article where a_id in (5, 17, 300, 301, 750, 1200, 1201, 1999);
-- sale_supply
select quantity, place_1, notes from supply where a_id = 500 and d_id = 1 for update;
-- sale_supply_update
update supply set quantity = 50, sold = sold + 5, sales = sales + 1 where a_id = 500 and d_id = 1;
-- payment_depot
update depot set turnover = turnover + 10 where d_id = 1;
-- payment_count_names
select count(b_id) from buyer where d_id = 1 and r_id = 3 and last_name = 'last17';
-- payment_by_name
select first_name, middle, b_id, balance from buyer where d_id = 1 and r_id = 3 and last_name = 'last17' order by first_name;
-- payment_by_id
select first_name, last_name, balance from buyer where d_id = 1 and r_id = 3 and b_id = 60 for update;
-- payment_update
update buyer set balance = balance - 10, paid = paid + 10, payments = payments + 1 where d_id = 1 and r_id = 3 and b_id = 60;
-- state_last_sale
select s_id, made_at, carrier from sale where d_id = 1 and r_id = 3 and b_id = 60 order by s_id desc limit 1;
-- state_last_sale_id
select s_id, carrier, made_at from sale where d_id = 1 and r_id = 3 and b_id = 60 and s_id = (select max(s_id) from sale where d_id = 1 and r_id = 3 and b_id = 60);
-- state_lines
select a_id, supply_d_id, quantity, amount, delivered_at from sale_line where d_id = 1 and r_id = 3 and s_id = 70;
-- delivery_oldest
select s_id from pending where d_id = 1 and r_id = 3 order by s_id limit 1 for update;
-- delivery_min
select min(s_id) from pending where d_id = 1 and r_id = 3;
-- delivery_delete
delete from pending where d_id = 1 and r_id = 3 and s_id = 1400;
-- delivery_buyer
select b_id from sale where d_id = 1 and r_id = 3 and s_id = 70;
-- delivery_sale
update sale set carrier = 4 where d_id = 1 and r_id = 3 and s_id = 70;
-- delivery_lines
update sale_line set delivered_at = '2026-02-01' where d_id = 1 and r_id = 3 and s_id = 70;
-- delivery_sum
select sum(amount) from sale_line where d_id = 1 and r_id = 3 and s_id = 70;
-- level_next
select next_sale from district where d_id = 1 and r_id = 3;
-- level_count
select count(distinct p.a_id) from sale_line l join supply p on p.d_id = 1 and p.a_id = l.a_id and p.quantity < 15 where l.d_id = 1 and l.r_id = 3 and l.s_id between 50 and 70;
-- level_count_comma
select count(distinct (p.a_id)) from sale_line l, supply p where l.d_id = 2 and l.r_id = 5 and l.s_id < 100 and l.s_id >= 80 and p.d_id = 2 and p.a_id = l.a_id and p.quantity < 18;
-- check_turnover
select d.d_id, d.turnover, sum(r.turnover) from depot d join district r on r.d_id = d.d_id group by d.d_id, d.turnover;
-- check_next_sale
select r.d_id, r.r_id, r.next_sale, max(s.s_id) from district r join sale s on s.d_id = r.d_id and s.r_id = r.r_id group by r.d_id, r.r_id;
-- check_pending_range
select d_id, r_id, max(s_id) - min(s_id) + 1, count(*) from pending group by d_id, r_id;
-- check_lines
select s.d_id, s.r_id, sum(s.line_count) from sale s group by s.d_id, s.r_id;
-- check_carrier
select count(*) from sale s left join pending p on p.d_id = s.d_id and p.r_id = s.r_id and p.s_id = s.s_id where s.carrier is null and p.s_id is null;
-- buyer_history
select p.paid_at, p.amount from payment p where p.b_d_id = 1 and p.b_r_id = 3 and p.b_id = 60;
-- article_sales
select l.a_id, sum(l.quantity) from sale_line l where l.supply_d_id = 1 and l.a_id between 100 and 120 group by l.a_id;
-- all_depots_supply
select d_id, quantity from supply where a_id = 1234;
